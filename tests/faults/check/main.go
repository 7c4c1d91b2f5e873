// Check that a history of operations on keys is linearizable, key by key, with Porcupine.
//
// Usage: check [-shared] HISTORY
//
// HISTORY has a line for each operation (tests/faults/history.py writes it), of fields between
// tabs: process, kind, number written, number found, time of the call, time of the end (-1 where
// nobody knows), key. It prints a line for each key with a violation, and one that counts. The exit
// status is 0 if there was none, 1 if there was one, and 2 if something could not be checked.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	shared := flag.Bool("shared", false, "servers stand in for one another, and so add twice")
	seconds := flag.Int("seconds", 120, "time for one key; beyond it, the key counts as unknown")
	pictures := flag.String("pictures", "", "a folder for a page about each violation")
	flag.Parse()
	histories, err := readHistories(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	keys := make([]string, 0, len(histories))
	operations := 0
	for key, history := range histories {
		keys = append(keys, key)
		operations += len(history)
	}
	sort.Strings(keys)
	results := checkAll(keys, histories, register(*shared), time.Duration(*seconds)*time.Second)
	illegal, unknown := 0, 0
	for i, key := range keys {
		switch results[i].verdict {
		case porcupine.Illegal:
			illegal++
			fmt.Printf("violation\t%s\t%d operations\t%s\n", key, len(histories[key]), results[i].last)
			draw(*pictures, illegal, results[i])
		case porcupine.Unknown:
			unknown++
			fmt.Printf("unknown\t%s\t%d operations\n", key, len(histories[key]))
		}
	}
	fmt.Printf("checked\t%d keys\t%d operations\t%d violations\t%d unknown\n",
		len(keys), operations, illegal, unknown)
	switch {
	case illegal > 0:
		os.Exit(1)
	case unknown > 0 || len(keys) == 0:
		os.Exit(2)
	}
}

type result struct {
	verdict porcupine.CheckResult
	last    string // the first operation that no order explains, in words
	model   porcupine.Model
	about   porcupine.LinearizationInfo
}

// checkAll checks the keys, one after another in each of a few threads: a search may take much
// memory.
func checkAll(
	keys []string, histories map[string][]operation, model porcupine.Model, limit time.Duration,
) []result {
	results := make([]result, len(keys))
	next := make(chan int)
	var threads sync.WaitGroup
	for range 2 {
		threads.Add(1)
		go func() {
			defer threads.Done()
			for i := range next {
				results[i] = checkOne(histories[keys[i]], model, limit)
			}
		}()
	}
	for i := range keys {
		next <- i
	}
	close(next)
	threads.Wait()
	return results
}

func checkOne(history []operation, model porcupine.Model, limit time.Duration) result {
	few := toPorcupine(narrow(history, false))
	if porcupine.CheckOperationsTimeout(model, few, limit) == porcupine.Ok {
		return result{verdict: porcupine.Ok}
	}
	narrowed := toPorcupine(narrow(history, true))
	verdict := porcupine.CheckOperationsTimeout(model, narrowed, limit)
	if verdict != porcupine.Illegal {
		return result{verdict: verdict}
	}
	verdict, about := porcupine.CheckOperationsVerbose(model, narrowed, limit)
	return result{verdict: verdict, last: unexplained(model, narrowed), model: model, about: about}
}

// unexplained names the end of the shortest beginning of a history that is not linearizable.
func unexplained(model porcupine.Model, history []porcupine.Operation) string {
	sort.Slice(history, func(a, b int) bool { return history[a].Return < history[b].Return })
	beginning := func(end int) []porcupine.Operation {
		// What had begun by then may have had its effect.
		last := history[end].Return
		found := []porcupine.Operation{}
		for i, one := range history {
			if i > end && one.Call > last {
				continue
			}
			if i > end {
				if one.Input.(operation).kind == get {
					continue
				}
				one.Output = anything
			}
			found = append(found, one)
		}
		return found
	}
	end := sort.Search(len(history)-1, func(i int) bool {
		return porcupine.CheckOperationsTimeout(model, beginning(i), 20*time.Second) ==
			porcupine.Illegal
	})
	one := history[end]
	before := ""
	for i := max(0, end-4); i < end; i++ {
		before += describe(history[i]) + "; "
	}
	return fmt.Sprintf("%safter which: %s", before, describe(one))
}

func draw(folder string, number int, found result) {
	if folder == "" || number > 20 {
		return
	}
	path := filepath.Join(folder, fmt.Sprintf("violation-%d.html", number))
	if err := porcupine.VisualizePath(found.model, found.about, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
