"""What becomes of the pods if nodes are drained or added, workloads scaled, taints removed.

The changes are made in a copy of the cluster, then all pending pods are decided as a scheduler
would. Does not belong here: anything that writes to a cluster, or explains a single decision.
"""
