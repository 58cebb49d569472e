"""What tests of several folders use: worlds to tell stories in, stand-ins, short spellings.

A test folder imports from itself and from here, never from another folder's tests. `sim`, `e2e` and `spark` hold what
belongs to one level, its world first; what stands directly here is used on all of them.
"""
