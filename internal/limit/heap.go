package limit

// index names a waiter's position in one of the two heaps it is in.
type index uint8

const (
	byTurn   index = iota // who runs next
	byGiveUp              // who gives up next
	numIndexes
)

// heap is a binary heap of waiters that keeps each waiter's position up to date, so that any can be removed in
// O(log n). container/heap would do the same through an interface call and a conversion per step.
type heap struct {
	which index
	less  func(a, b *waiter) bool
	items []*waiter
}

func (h *heap) len() int { return len(h.items) }

// top is the first waiter, or nil.
func (h *heap) top() *waiter {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) push(w *waiter) {
	h.items = append(h.items, w)
	h.up(len(h.items) - 1)
}

func (h *heap) remove(w *waiter) {
	i := w.pos[h.which]
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.items[i] = moved
	h.down(i)
	h.up(moved.pos[h.which])
}

func (h *heap) up(i int) {
	w := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(w, h.items[parent]) {
			break
		}
		h.place(i, h.items[parent])
		i = parent
	}
	h.place(i, w)
}

func (h *heap) down(i int) {
	w := h.items[i]
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if r := child + 1; r < len(h.items) && h.less(h.items[r], h.items[child]) {
			child = r
		}
		if !h.less(h.items[child], w) {
			break
		}
		h.place(i, h.items[child])
		i = child
	}
	h.place(i, w)
}

func (h *heap) place(i int, w *waiter) {
	h.items[i] = w
	w.pos[h.which] = i
}

// beforeTurn is the order edf.
func beforeTurn(a, b *waiter) bool {
	if a.want.Priority != b.want.Priority {
		return a.want.Priority > b.want.Priority
	}
	if !a.want.Deadline.Equal(b.want.Deadline) {
		return a.want.Deadline.Before(b.want.Deadline)
	}
	return a.seq < b.seq
}

func beforeGiveUp(a, b *waiter) bool {
	if !a.want.GiveUp.Equal(b.want.GiveUp) {
		return a.want.GiveUp.Before(b.want.GiveUp)
	}
	return a.seq < b.seq
}
