"""The paper reproduced: its numbers as data, the runs of its tables and figures, and both side by side."""
