"""The processes of a job on several hosts: their start, messages, agreement on stopping, watch."""
