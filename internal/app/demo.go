package app

type demoCmd struct{}

func (c *demoCmd) Run() error { return nil }
