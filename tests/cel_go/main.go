// Command celanswers compiles device selectors with upstream's own packages and evaluates them.
//
// Each line of standard input is a question (JSON), each line of standard output its answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Question is an expression and the devices on which it is evaluated.
type Question struct {
	Expression           string   `json:"expression"`
	NoConsumableCapacity bool     `json:"noConsumableCapacity,omitempty"`
	ListTypeAttributes   bool     `json:"listTypeAttributes,omitempty"`
	CostLimit            *uint64  `json:"costLimit,omitempty"`
	Devices              []Device `json:"devices"`
}

// Device has the fields of a device in a ResourceSlice that selectors read.
type Device struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations,omitempty"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity,omitempty"`
}

// Answer is what upstream says.
type Answer struct {
	CompileError string   `json:"compileError,omitempty"`
	Type         string   `json:"type,omitempty"`
	MaxCost      uint64   `json:"maxCost,omitempty"`
	Results      []Result `json:"results,omitempty"`
}

// Result is the value, or the error, for one device.
type Result struct {
	Matches bool    `json:"matches,omitempty"`
	Error   string  `json:"error,omitempty"`
	Cost    *uint64 `json:"cost,omitempty"`
}

func answer(question Question) Answer {
	compiler := cel.GetCompiler(cel.Features{
		EnableConsumableCapacity: !question.NoConsumableCapacity,
		EnableListTypeAttributes: question.ListTypeAttributes,
	})
	compiled := compiler.CompileCELExpression(question.Expression, cel.Options{CostLimit: question.CostLimit})
	if compiled.Error != nil {
		return Answer{CompileError: compiled.Error.Error()}
	}
	found := Answer{Type: compiled.OutputType.String(), MaxCost: compiled.MaxCost}
	for _, device := range question.Devices {
		matches, details, err := compiled.DeviceMatches(context.Background(), cel.Device{
			Driver:                   device.Driver,
			AllowMultipleAllocations: device.AllowMultipleAllocations,
			Attributes:               device.Attributes,
			Capacity:                 device.Capacity,
		})
		result := Result{Matches: matches}
		if err != nil {
			result.Error = err.Error()
		}
		if details != nil {
			result.Cost = details.ActualCost()
		}
		found.Results = append(found.Results, result)
	}
	return found
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	decoder := json.NewDecoder(lines)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		var question Question
		if err := decoder.Decode(&question); err != nil {
			return
		}
		if err := encoder.Encode(answer(question)); err != nil {
			panic(err)
		}
		out.Flush()
	}
}
