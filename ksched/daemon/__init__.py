"""The process around a scheduler: signals, leader election, metrics, watchdog.

Does not belong here: anything a scheduler needs when it is embedded in another program.
"""
