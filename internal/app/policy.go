package app

type policyCmd struct{}

func (c *policyCmd) Run() error { return nil }
