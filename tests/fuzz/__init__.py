"""Inputs that nobody meant well: thousands of them, made from good ones by a seeded mutator.

Every reader of a file or a word from outside either takes what it is given or refuses it in one line. ``subjects`` says
what is read, ``mutations`` spoils it, ``trial`` watches what happens. ``python -m tests.fuzz`` goes on for as long as
it is told to.
"""
