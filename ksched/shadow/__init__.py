"""Beside a live scheduler: every decision that it makes is made again, and compared.

Reads a cluster by list and watch. Does not belong here: any write, and any queue of its own; which
pod is next is the live scheduler's choice.
"""
