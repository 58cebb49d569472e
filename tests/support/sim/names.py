"""What things are called in every simulation: one project, its buckets, and a table of numbered rows."""

PROJECT = "sim-project"
TRIGGER = f"{PROJECT}-trigger"
OPS = f"{PROJECT}-ops"
CONFIG = f"{PROJECT}-config"
DATASET = "bqtail"
SCHEMA = {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]}
