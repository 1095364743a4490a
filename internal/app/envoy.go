package app

type envoyCmd struct{}

func (c *envoyCmd) Run() error { return nil }
