package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Kinds of operations, as tests/faults/history.py names them.
const (
	set    = "set"
	add    = "add" // set_if_not_exists
	del    = "delete"
	get    = "get"
	lose   = "lose" // the loss of what a server had in memory, as somebody accepts it
	notYet = -1     // the end of an operation whose outcome nobody knows
)

// operation is a line of the history.
type operation struct {
	process   int
	kind      string
	number    int64 // what it writes
	found     int64 // what it read, 0 for a missing key; 1 if an add has written
	call, end int64
}

// readHistories reads a file of operations, and returns those of each key.
func readHistories(path string) (map[string][]operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	histories := map[string][]operation{}
	lines := bufio.NewScanner(file)
	for line := 1; lines.Scan(); line++ {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 7 {
			return nil, fmt.Errorf("%s:%d: %d fields", path, line, len(fields))
		}
		var numbers [5]int64
		for i, field := range []int{0, 2, 3, 4, 5} {
			if numbers[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, line, err)
			}
		}
		kind := fields[1]
		if kind != set && kind != add && kind != del && kind != get && kind != lose {
			return nil, fmt.Errorf("%s:%d: no operation is named %q", path, line, kind)
		}
		one := operation{int(numbers[0]), kind, numbers[1], numbers[2], numbers[3], numbers[4]}
		histories[fields[6]] = append(histories[fields[6]], one)
	}
	return histories, lines.Err()
}

// narrow bounds operations whose outcome nobody knows, so that fewer orders are left to search.
//
// Whoever read what such a write wrote shows that it was done by then. The others may have had no
// effect at all: where an order is found without them, one of the whole history has them at its end.
// So they are first left out. They are needed, with all, where only they explain what was read: a
// removal that was carried out, or a value that refused an add.
func narrow(history []operation, all bool) []operation {
	seen := map[int64]int64{}
	for _, one := range history {
		if one.kind == get && one.found != 0 {
			if before, was := seen[one.found]; !was || one.end < before {
				seen[one.found] = one.end
			}
		}
	}
	found := make([]operation, 0, len(history))
	for _, one := range history {
		if one.end == notYet {
			if end, was := seen[one.number]; was && one.number != 0 {
				one.end, one.found = max(end, one.call), 1
			} else if !all {
				continue
			}
		}
		found = append(found, one)
	}
	return found
}

// toPorcupine returns the operations as Porcupine takes them. One whose outcome nobody knows may
// have its effect at any time until the end of the history.
func toPorcupine(history []operation) []porcupine.Operation {
	operations := make([]porcupine.Operation, 0, len(history))
	for _, one := range history {
		output, end := one.found, one.end
		if end == notYet {
			output, end = anything, math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.process, Input: one, Call: one.call, Output: output, Return: end,
		})
	}
	return operations
}
