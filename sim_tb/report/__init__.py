"""Reports of kernel runs: the HTML page, the timeline, and the figures of the documents.

Records of runs enter; files leave. The package knows the records of ``sim_tb.sm``.
"""
