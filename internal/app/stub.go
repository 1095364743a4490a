package app

type stubCmd struct{}

func (c *stubCmd) Run() error { return nil }
