"""Runs of many tasks on the worker processes of one computer or of a cluster of computers.

``workers`` sends the tasks to ``dask.distributed``. ``store`` keeps the results in an SQLite file.
"""
