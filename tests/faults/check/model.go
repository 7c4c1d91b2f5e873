package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// anything is the outcome of an operation of which nobody knows the outcome.
const anything = int64(-2)

// register is the model of one key: the number of the operation whose value it has; 0 for none.
//
// Where servers stand in for one another, an add may be sent twice. The second server finds the
// value that the first one has written, and says that somebody else was there before: that is
// documented (docs/cluster.md), so such an add may have written.
func register(shared bool) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return int64(0) },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			now, one, result := state.(int64), input.(operation), output.(int64)
			switch one.kind {
			case get:
				return result == now, now
			case set:
				return true, one.number
			case del, lose:
				return true, int64(0)
			}
			if now != 0 {
				return result != 1, now
			}
			return result != 0 || shared, one.number
		},
		Equal:             func(a, b interface{}) bool { return a.(int64) == b.(int64) },
		DescribeOperation: func(input, output interface{}) string { return inWords(input, output) },
		DescribeState:     func(state interface{}) string { return name(state.(int64)) },
	}
}

func describe(one porcupine.Operation) string {
	text := inWords(one.Input, one.Output)
	seconds := float64(one.Call) / 1e9
	if one.Output.(int64) == anything {
		return fmt.Sprintf("process %d at %.4f s: %s", one.ClientId, seconds, text)
	}
	took := float64(one.Return-one.Call) / 1e9
	return fmt.Sprintf("process %d at %.4f s for %.4f s: %s", one.ClientId, seconds, took, text)
}

func inWords(input, output interface{}) string {
	one, result := input.(operation), output.(int64)
	unknown := ""
	if result == anything {
		unknown = " (nobody knows)"
	}
	switch {
	case one.kind == get:
		return "get " + name(result)
	case one.kind == add && result == 0:
		return "add " + name(one.number) + " refused"
	case one.kind == set, one.kind == add:
		return one.kind + " " + name(one.number) + unknown
	}
	return one.kind + unknown
}

// name shows a number as tests/faults/values.py makes them: the process, and its operation.
func name(number int64) string {
	if number == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d.%d", number>>32, number&0xffffffff)
}
