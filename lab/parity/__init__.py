"""The same random pods on the same random clusters, decided by kube-scheduler and by ksched.

``manifests`` makes clusters and pods from a seed, ``arena`` has both schedulers decide them on one
real API server, ``verdicts`` says what counts as the same decision, ``scenario`` plays a seed.
``influences`` finds out which plugins a decision hung on, ``tally`` counts them.

Does not belong here: anything that judges a pod by itself. Right is what kube-scheduler does.
"""
