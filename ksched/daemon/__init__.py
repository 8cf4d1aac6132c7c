"""The process around a scheduler: signals, leader election, metrics that follow the parts.

Does not belong here: anything a scheduler needs when it is embedded in another program.
"""
