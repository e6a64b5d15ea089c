"""Many trainings side by side: sweeps, comparisons, the figures of the paper."""
