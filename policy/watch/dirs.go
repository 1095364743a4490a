package watch

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds how many symbolic links from the file on are followed; Linux itself follows 40.
const maxLinks = 40

// dirs keeps the right directories watched.
type dirs struct {
	notifier *fsnotify.Watcher // nil: nothing is watched
	log      *slog.Logger
	watched  map[string]os.FileInfo // by path; the info tells a replaced directory from the watched one
	failed   map[string]bool        // directories whose failure to be watched was logged
	content  map[string]bool        // directories in which every event counts
}

func newDirs(n *fsnotify.Watcher, log *slog.Logger) *dirs {
	return &dirs{notifier: n, log: log, watched: map[string]os.FileInfo{}, failed: map[string]bool{}}
}

// concerns reports whether an event of that name can mean a change of the file. In a directory of the chain every
// event counts, since what a swap looks like depends on who swaps; in a parent only the directory itself does.
func (d *dirs) concerns(name string) bool {
	return d.content[name] || d.content[filepath.Dir(name)]
}

// sync makes the watches those path needs now. A directory that does not exist is tried again at the next sync.
func (d *dirs) sync(path string) {
	if d.notifier == nil {
		return
	}
	d.content = chain(path)
	want := make(map[string]bool, 2*len(d.content))
	for dir := range d.content {
		want[dir], want[filepath.Dir(dir)] = true, true
	}
	for dir, old := range d.watched {
		now, err := os.Stat(dir)
		if want[dir] && err == nil && os.SameFile(old, now) {
			continue
		}
		// The notifier has dropped a watch whose directory is gone; nothing is left to remove then.
		if err := d.notifier.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
			d.log.Debug("policy watch not removed", "dir", dir, "error", err)
		}
		delete(d.watched, dir)
	}
	for dir := range want {
		d.add(dir)
	}
}

func (d *dirs) add(dir string) {
	if d.watched[dir] != nil {
		return
	}
	info, err := os.Stat(dir)
	if err == nil {
		err = d.notifier.Add(dir)
	}
	if err != nil {
		if !d.failed[dir] {
			d.failed[dir] = true
			d.log.Warn("policy directory not watched, only polled", "dir", dir, "error", err)
		}
		return
	}
	delete(d.failed, dir)
	d.watched[dir] = info
}

func (d *dirs) close() {
	if d.notifier == nil {
		return
	}
	if err := d.notifier.Close(); err != nil {
		d.log.Debug("policy watch not closed", "error", err)
	}
}

// chain returns the directories through which path leads to a file: its own, and that of each symbolic link on
// the way, without links in their own names, so that a directory has one name.
func chain(path string) map[string]bool {
	found := map[string]bool{}
	for range maxLinks {
		abs, err := filepath.Abs(path)
		if err != nil {
			return found
		}
		dir := filepath.Dir(abs)
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		found[dir] = true
		target, err := os.Readlink(filepath.Join(dir, filepath.Base(abs)))
		if err != nil { // not a link, or not there
			return found
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return found
}
