"""BigQuery's types and file formats: how a file becomes rows, and why a row is refused.

Written down once. Spark's workers read a batch's files with it, and the local BigQuery its loads; so a file that one of
them takes is taken by the other, and both name a bad row's place in the same words.
"""
