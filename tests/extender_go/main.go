// An extender in Go, with nothing but the standard library: what an author would write who knows the
// documented messages and has never seen ksched.
//
// Its policy is a JSON object of node names; it records every request as a line of JSON.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
)

// Policy says what to answer.
type Policy struct {
	Failed       map[string]string // message by node; preemption may help
	Unresolvable map[string]string // message by node; preemption would not help
	Scores       map[string]int64  // 0 to 10 by node
	Preempt      []string          // where victims may be evicted
}

type Object struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
}

type NodeList struct {
	Items []json.RawMessage `json:"items"`
}

type ExtenderArgs struct {
	Pod       json.RawMessage
	Nodes     *NodeList
	NodeNames *[]string
}

type ExtenderFilterResult struct {
	Nodes                      *NodeList
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type HostPriority struct {
	Host  string
	Score int64
}

type ExtenderBindingArgs struct {
	PodName      string
	PodNamespace string
	PodUID       string
	Node         string
}

type ExtenderBindingResult struct {
	Error string
}

type MetaPod struct {
	UID string
}

type MetaVictims struct {
	Pods             []*MetaPod
	NumPDBViolations int64
}

type Victims struct {
	Pods             []*Object
	NumPDBViolations int64
}

type ExtenderPreemptionArgs struct {
	Pod                   json.RawMessage
	NodeNameToVictims     map[string]*Victims
	NodeNameToMetaVictims map[string]*MetaVictims
}

type ExtenderPreemptionResult struct {
	NodeNameToMetaVictims map[string]*MetaVictims
}

type extender struct {
	policy Policy
	server string
	token  string
	client *http.Client
	mutex  sync.Mutex
	record *os.File
}

// each calls a function with the name of every node and, if it was sent, the node itself.
func (args *ExtenderArgs) each(call func(name string, node json.RawMessage)) {
	if args.NodeNames != nil {
		for _, name := range *args.NodeNames {
			call(name, nil)
		}
		return
	}
	for _, item := range args.Nodes.Items {
		var node Object
		if err := json.Unmarshal(item, &node); err != nil {
			log.Fatal(err)
		}
		call(node.Metadata.Name, item)
	}
}

func (e *extender) filter(body []byte) (any, error) {
	var args ExtenderArgs
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, err
	}
	result := ExtenderFilterResult{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}}
	names, nodes := []string{}, &NodeList{Items: []json.RawMessage{}}
	args.each(func(name string, node json.RawMessage) {
		if message, found := e.policy.Unresolvable[name]; found {
			result.FailedAndUnresolvableNodes[name] = message
		} else if message, found := e.policy.Failed[name]; found {
			result.FailedNodes[name] = message
		} else if node != nil {
			nodes.Items = append(nodes.Items, node)
		} else {
			names = append(names, name)
		}
	})
	if args.NodeNames != nil {
		result.NodeNames = &names
	} else {
		result.Nodes = nodes
	}
	return result, nil
}

func (e *extender) prioritize(body []byte) (any, error) {
	var args ExtenderArgs
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, err
	}
	result := []HostPriority{}
	args.each(func(name string, _ json.RawMessage) {
		result = append(result, HostPriority{name, e.policy.Scores[name]})
	})
	return result, nil
}

func (e *extender) bind(body []byte) (any, error) {
	var args ExtenderBindingArgs
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, err
	}
	binding := map[string]any{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   map[string]string{"name": args.PodName, "namespace": args.PodNamespace, "uid": args.PodUID},
		"target":     map[string]string{"kind": "Node", "name": args.Node},
	}
	content, err := json.Marshal(binding)
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", e.server, args.PodNamespace, args.PodName)
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+e.token)
	response, err := e.client.Do(request)
	if err != nil {
		return ExtenderBindingResult{Error: err.Error()}, nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(response.Body)
		return ExtenderBindingResult{Error: string(text)}, nil
	}
	return ExtenderBindingResult{}, nil
}

func (e *extender) preempt(body []byte) (any, error) {
	var args ExtenderPreemptionArgs
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, err
	}
	result := ExtenderPreemptionResult{NodeNameToMetaVictims: map[string]*MetaVictims{}}
	for _, name := range e.policy.Preempt {
		if victims, found := args.NodeNameToMetaVictims[name]; found {
			result.NodeNameToMetaVictims[name] = victims
		}
		if victims, found := args.NodeNameToVictims[name]; found {
			meta := &MetaVictims{NumPDBViolations: victims.NumPDBViolations}
			for _, pod := range victims.Pods {
				meta.Pods = append(meta.Pods, &MetaPod{UID: pod.Metadata.UID})
			}
			result.NodeNameToMetaVictims[name] = meta
		}
	}
	return result, nil
}

func (e *extender) handle(verb string, answer func([]byte) (any, error)) {
	http.HandleFunc("/scheduler/"+verb, func(writer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		line, err := json.Marshal(map[string]any{"verb": verb, "body": string(body)})
		if err != nil {
			log.Fatal(err)
		}
		e.mutex.Lock()
		fmt.Fprintf(e.record, "%s\n", line)
		e.mutex.Unlock()
		result, err := answer(body)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(result); err != nil {
			log.Print(err)
		}
	})
}

func pool(path string) *x509.CertPool {
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	certificates := x509.NewCertPool()
	certificates.AppendCertsFromPEM(content)
	return certificates
}

func main() {
	address := flag.String("listen", "127.0.0.1:0", "address to listen on")
	policy := flag.String("policy", "{}", "what to answer, as JSON")
	record := flag.String("record", os.DevNull, "file for the requests")
	server := flag.String("server", "", "URL of the API server, for bind")
	token := flag.String("token", "", "bearer token for the API server")
	ca := flag.String("ca", "", "certificates of the API server")
	cert := flag.String("tls-cert", "", "certificate to serve HTTPS with")
	key := flag.String("tls-key", "", "its key")
	clientCA := flag.String("client-ca", "", "who may ask: holders of certificates from here")
	flag.Parse()

	file, err := os.Create(*record)
	if err != nil {
		log.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(*ca)}}
	e := &extender{server: *server, token: *token, client: &http.Client{Transport: transport}, record: file}
	if err := json.Unmarshal([]byte(*policy), &e.policy); err != nil {
		log.Fatal(err)
	}
	e.handle("filter", e.filter)
	e.handle("prioritize", e.prioritize)
	e.handle("bind", e.bind)
	e.handle("preempt", e.preempt)

	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if *cert == "" {
		log.Fatal(http.Serve(listener, nil))
	}
	config := &tls.Config{ClientCAs: pool(*clientCA)}
	if *clientCA != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	https := &http.Server{TLSConfig: config}
	log.Fatal(https.ServeTLS(listener, *cert, *key))
}
