"""Test support for ksched and for plugin authors: a whole cluster inside your own pytest.

Does not belong here: anything the scheduler needs to run. Nothing outside the tests and the command
line imports this package.
"""
