"""Functions of the package that the command line offers by the same words: ``analyze``, ``check``, ``fit``, and others.

``vflsim`` exports them. They import what they need when they are called, so that ``import vflsim`` stays quick.
"""
