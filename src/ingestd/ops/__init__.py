"""Operating it: logs, metrics, probes."""
