package app

type loadCmd struct{}

func (c *loadCmd) Run() error { return nil }
