package app

type versionCmd struct{}

func (c *versionCmd) Run() error { return nil }
