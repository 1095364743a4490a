package app

type serveCmd struct{}

func (c *serveCmd) Run() error { return nil }
