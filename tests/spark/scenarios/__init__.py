"""What needs sessions of its own, each runnable by itself: `python -m tests.spark.scenarios.bucket`."""
