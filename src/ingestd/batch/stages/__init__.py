"""What carries out the commands of `decide`: each stage brings the record further, and may die anywhere on the way."""
