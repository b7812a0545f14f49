"""The units whose cells ``make cells`` counts."""

from hw.flow.cells import FEATURES, features


def test_each_feature_is_the_only_difference_of_two_legal_units() -> None:
    pairs = {feature: (vars(params), vars(without)) for feature, params, without in features()}
    assert pairs.keys() == FEATURES.keys()
    for feature, (params, without) in pairs.items():
        assert {name for name in FEATURES if params[name] != without[name]} == {feature}
        assert params[feature] == FEATURES[feature]
