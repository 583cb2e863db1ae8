package scaler

// pool sums up what a NodeSet has before anything is placed. No number of it is too small, except those of empty nodes.
type pool struct {
	nodes int64 // up or booting
	empty int64 // of them
	free  amounts
	least amounts // of an empty one
	most  amounts // of a powered-down one
}

// amounts are what jobs can take of nodes: cores, memory, and generic resources in the order of world.gres.
type amounts []int64

// Places in amounts.
const (
	dimCores = iota
	dimMemory
	dimGres
)

func (w *world) amounts() amounts { return make(amounts, dimGres+len(w.gres)) }

func (a amounts) add(b amounts, times int64) {
	for k, n := range b {
		a[k] += n * times
	}
}

// pools makes one pool for each NodeSet, and one for all nodes at the end. Powered-down nodes of nobody count there as up.
func (w *world) pools() []pool {
	pools := make([]pool, len(w.snap.NodeSets)+1)
	for i := range pools {
		pools[i] = pool{free: w.amounts(), most: w.amounts()}
	}
	left := w.amounts()
	for _, c := range w.classes {
		whole := w.amounts()
		c.fill(whole, c.cores, c.mem, c.counts)
		into := []*pool{&pools[len(pools)-1]}
		ready := [][]int32{c.lists[up], c.lists[booting]}
		if c.set == foreign {
			ready = append(ready, c.off)
		} else {
			into = append(into, &pools[c.set])
			if len(c.off) > 0 {
				for _, p := range into {
					p.most.max(whole)
				}
			}
		}
		for _, list := range ready {
			for _, at := range list {
				b := &w.bins[at]
				have := whole
				if !b.empty {
					have = left
					cores := b.cores
					if b.rows != nil { // they have more for jobs that share
						cores = c.cores
					}
					c.fill(left, cores, b.mem, b.gres)
				}
				for _, p := range into {
					p.nodes++
					p.free.add(have, 1)
					if b.empty {
						p.empty++
						p.least = lesser(p.least, whole)
					}
				}
			}
		}
	}
	return pools
}

// fill puts what a node of the class has into a.
func (c *class) fill(a amounts, cores, mem int64, gres []int64) {
	clear(a)
	a[dimCores], a[dimMemory] = cores, mem
	for k, n := range gres {
		a[dimGres+c.dims[k]] += n
	}
}

// lesser keeps the smaller of each in a, which it makes if it is nil.
func lesser(a, b amounts) amounts {
	if a == nil {
		return append(a, b...)
	}
	for k, n := range b {
		a[k] = min(a[k], n)
	}
	return a
}

func (a amounts) max(b amounts) {
	for k, n := range b {
		a[k] = max(a[k], n)
	}
}

// tally sums up what the jobs placed need at the very least of one pool.
type tally struct {
	need  amounts
	whole int64 // empty nodes, for jobs that share them with none
	nodes int64 // a bound that comes from single requests
}

// lowerBounds is how many nodes at the least must be powered up in each NodeSet, and in all, so that the jobs placed can
// all run at once. No placing could do with fewer: it adds up what they need, divides it among nodes as
// if jobs could be cut at will, and looks at each request by itself besides.
func (w *world) lowerBounds(pools []pool, needs []*need) (sets []int, total int) {
	tallies := make([]tally, len(pools))
	for i := range tallies {
		tallies[i].need = w.amounts()
	}
	last := len(pools) - 1
	least, each := w.amounts(), w.amounts()
	for _, n := range needs {
		if n.placed == 0 {
			continue
		}
		set, only := n.onlySet()
		tallies[last].count(n, &pools[last], least, each)
		if only {
			tallies[set].count(n, &pools[set], least, each)
		}
	}
	sum := int64(0)
	sets = make([]int, last)
	for i := range sets {
		bound := tallies[i].bound(&pools[i])
		sets[i] = int(bound)
		sum += bound
	}
	return sets, int(max(sum, tallies[last].bound(&pools[last])))
}

// onlySet is the NodeSet the job can run in, if it is one alone and no other nodes serve.
func (n *need) onlySet() (int, bool) {
	set, found, only := 0, false, true
	for _, v := range n.variants {
		v.each(func(f *fitting) {
			switch {
			case f.c.usable == 0:
			case f.c.set == foreign, found && f.c.set != set:
				only = false
			default:
				set, found = f.c.set, true
			}
		})
	}
	return set, found && only
}

// count adds the jobs of a request. It uses least and each for itself.
func (t *tally) count(n *need, p *pool, least, each amounts) {
	first := true
	nodes, whole := int64(-1), true
	perOff, perUp, single := int64(0), int64(0), true
	for _, v := range n.variants {
		if nodes < 0 || v.least < nodes {
			nodes = v.least
		}
		v.each(func(f *fitting) {
			if f.c.usable == 0 {
				return
			}
			f.total(v.least, each)
			if first {
				copy(least, each)
			}
			first = false
			lesser(least, each)
			whole = whole && f.exclusive == ExclusiveNode
			single = single && v.most == 1 && f.share == 1
			if len(f.c.off) > 0 && f.c.set != foreign {
				perOff = max(perOff, f.jobs())
			}
			perUp = max(perUp, f.jobs())
		})
	}
	t.nodes = max(t.nodes, nodes-p.nodes)
	if whole {
		t.whole += nodes * n.placed
		return
	}
	t.need.add(least, n.placed)
	if single && perOff > 0 {
		fit := p.nodes * perUp
		for k, n := range least {
			if n > 0 {
				fit = min(fit, p.free[k]/n)
			}
		}
		t.nodes = max(t.nodes, divUp(max(0, n.placed-fit), perOff))
	}
}

// bound is the number of nodes to be powered up.
func (t *tally) bound(p *pool) int64 {
	// Jobs that want nodes for themselves may use empty ones, which are then lost for the others.
	reused := min(t.whole, p.empty)
	least := max(t.nodes, t.whole-reused)
	for k, want := range t.need {
		if p.most[k] == 0 {
			continue
		}
		empty := int64(0)
		if p.least != nil {
			empty = p.least[k]
		}
		nodes := func(x int64) int64 { return t.whole - x + divUp(max(0, want-p.free[k]+x*empty), p.most[k]) }
		best := min(nodes(0), nodes(reused))
		if empty > 0 && p.free[k] > want { // as many as the others do not miss
			x := min(reused, (p.free[k]-want)/empty)
			best = min(best, nodes(x), nodes(min(reused, x+1)))
		}
		least = max(least, best)
	}
	return least
}

// total is what the whole job takes at the least of nodes like these.
func (f *fitting) total(nodes int64, into amounts) {
	n, r := f.n, f.n.req
	gpus := int64(0)
	clear(into)
	for _, a := range f.asks {
		amount := max(mul(a.perNode, nodes), mul(a.perTask, n.tasks)) + a.perJob
		dim := dimGres + a.dim
		into[dim] = max(into[dim], amount) // one with and one without a type may be the same
		if a.name == "gpu" {
			gpus = into[dim]
		}
	}
	cpus := max(mul(n.tasks, n.cpusPerTask), mul(int64(r.CPUsPerNode), nodes), mul(gpus, n.cpusPerGPU))
	cores := max(nodes, divUp(cpus, f.usable))
	if r.TasksPerCore == 1 && n.cpusPerTask > f.usable {
		cores = max(cores, mul(n.tasks, divUp(n.cpusPerTask, f.usable)))
	}
	cores = max(cores, mul(nodes, f.perSocket))
	mem := int64(0)
	switch {
	case f.noMemory:
	case n.memPerGPU > 0:
		mem = mul(gpus, n.memPerGPU)
	case r.MemoryPerCPU:
		mem = mul(cores*f.charged, n.mem)
	case r.Memory == 0:
		mem = mul(nodes, f.c.mem)
	default:
		mem = mul(nodes, n.mem)
	}
	into[dimCores], into[dimMemory] = cores/f.share, mem
}

// jobs is how many jobs of one node each fit on an empty node.
func (f *fitting) jobs() int64 {
	cores, mem := f.claim(f.least, f.leastGPUs())
	jobs := min(f.c.cores, f.maxCores) / cores
	if mem > 0 {
		jobs = min(jobs, f.c.mem/mem)
	}
	for _, a := range f.asks {
		if each := a.amount(f.least) + a.perJob; each > 0 {
			have := int64(0)
			for _, k := range a.kinds {
				have += f.c.kinds[k].Count
			}
			jobs = min(jobs, have/each)
		}
	}
	return jobs
}
