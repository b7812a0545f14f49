"""Front end for hosts without an SM: registers, rings of records in memory, shared memory."""
