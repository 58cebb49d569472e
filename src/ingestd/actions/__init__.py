"""Post-actions: what happens after a load, one module per action, run in order by `executor`."""
