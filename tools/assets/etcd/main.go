// Command etcd is etcd of the version whose client kube-apiserver has.
//
// An older one would do, but not honestly: without its progress requests the API server refuses
// watches that begin with the state, and reads every list from etcd instead of its cache.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
