// Package watch keeps the demand of one Slurm cluster at hand: a Watcher reads the queue again and again, works out with
// scaler.Demand what it means, and holds the newest Figures for whoever asks.
//
//	w := watch.New(watch.Config{Queue: slurmrestClient, NodeSets: nodeSets})
//	go w.Run(ctx)
//	for {
//		changed := w.Changed() // before Latest, so that nothing is missed
//		figures, err := w.Latest()
//		if err == nil {
//			cpu, _ := figures.NodeSet("cpu")
//			fmt.Println(cpu.Nodes(), "nodes are needed, of which", cpu.New.Greedy, "are to be powered up")
//		}
//		<-changed
//	}
//
// # What it costs slurmctld
//
// Every half second slurmctld is asked for the jobs that changed since the last read. As long as none did, it compares two
// numbers and says so. When some did, it packs all of them; a read that took a second is followed by two without one, and so for any
// duration (Config.Rest). All are also read when none is said to have changed, since slurmctld may set its time of the last change back: every 30 s (Config.AllEvery), or
// ten times what the read took if that is longer, but every ten minutes at the least. Nodes cannot be asked for like that (see slurmrest's QueueNodes): they are
// read when jobs have changed, and every five seconds, with the same rest, and always right before jobs are asked for: then a job that starts
// or ends between the two reads is not taken for two. New jobs are therefore seen within a
// second while a read takes less than a quarter of one.
//
// While it takes more, a Queue that is a Peeker is asked for the IDs that slurmctld gives out next, every half second, also while partitions, nodes or all jobs are being
// read: so new jobs are seen within a second in queues of any length (256 of them at once; the rest come with the next read of all). They are looked
// after: one that starts, or is read to wait for something else than nodes, counts no more at once. Changes of all other jobs, such as one that is released or whose dependency has
// ended, are seen with the next read: within three times what a read takes, 15 s and twice that for long ones. A look that hangs holds up no read, and is given up after 30 s.
//
// IDs may begin again, when MaxJobId is reached or slurmctld has lost its state, and clusters of a federation have their own: the four places are looked at where jobs
// have turned up that a read of all had not shown before. At a new place the first jobs come with the next read of all.
//
// # Old figures are an error
//
// Latest fails when the queue has never been read, and when it could not be read for Config.MaxAge. It never says 0 because Slurm
// does not answer: an autoscaler would take the nodes away.
package watch
