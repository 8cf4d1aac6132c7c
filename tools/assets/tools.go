//go:build tools

// Package assets names the programs that the real-server tests start. The imports keep their
// modules in go.mod; nothing here is compiled.
package assets

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
