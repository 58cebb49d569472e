"""A batch: its durable record (`record`, `journal`), and its way from files to loaded rows (`runner`).

`decide` says what is done next, `stages` do it, and `drive` is what they have in common. `recovery` decides what is
loaded after a refusal, `quarantine` keeps bad files; `register` and `overwrites` let no content count twice.
"""
