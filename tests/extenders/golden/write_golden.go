//go:build ignore

// Writes the requests of this folder with kube-scheduler's own types, from objects as an API server
// returns them:
//
//	go mod init golden && go get k8s.io/kube-scheduler@v0.36.4 && go run write_golden.go .
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func read(path string, into any) {
	data, err := os.ReadFile(path)
	must(err)
	must(json.Unmarshal(data, into))
}

func write(path string, value any) {
	data, err := json.Marshal(value)
	must(err)
	must(os.WriteFile(path, data, 0o644))
	fmt.Println(path, len(data))
}

func pod(path string) *v1.Pod {
	var p v1.Pod
	read(path, &p)
	p.Kind, p.APIVersion, p.ManagedFields = "", "", nil
	return &p
}

func node(path string) v1.Node {
	var n v1.Node
	read(path, &n)
	n.Kind, n.APIVersion, n.ManagedFields = "", "", nil
	return n
}

func main() {
	d := os.Args[1] + "/"
	p, victim := pod(d+"pod.json"), pod(d+"victim.json")
	a, b := node(d+"node-a.json"), node(d+"node-b.json")
	names := []string{"node-a", "node-b"}
	write(d+"args-whole.json", extenderv1.ExtenderArgs{Pod: p, Nodes: &v1.NodeList{Items: []v1.Node{a, b}}})
	write(d+"args-names.json", extenderv1.ExtenderArgs{Pod: p, NodeNames: &names})
	write(d+"binding.json", extenderv1.ExtenderBindingArgs{PodName: p.Name, PodNamespace: p.Namespace, PodUID: p.UID, Node: "node-a"})
	write(d+"preemption-whole.json", extenderv1.ExtenderPreemptionArgs{Pod: p, NodeNameToVictims: map[string]*extenderv1.Victims{"node-b": {Pods: []*v1.Pod{victim}, NumPDBViolations: 1}, "node-a": {Pods: []*v1.Pod{victim}}}})
	write(d+"preemption-uids.json", extenderv1.ExtenderPreemptionArgs{Pod: p, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"node-b": {Pods: []*extenderv1.MetaPod{{UID: string(victim.UID)}}, NumPDBViolations: 1}, "node-a": {Pods: []*extenderv1.MetaPod{{UID: string(victim.UID)}}}}})
}
