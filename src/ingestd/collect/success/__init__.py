"""The `_SUCCESS` convention: a directory with a success file is a batch, configured by `_config/` files above it."""
