"""Reports of kernel runs: the HTML page, the timeline, and the figures of the documents.

Records of runs enter and files leave. The package imports ``sim_tb.sm``; ``figures`` also imports
the kernels that it runs.
"""
