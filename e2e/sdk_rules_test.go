package e2e

import (
	"testing"
)

func checkSDK(t *testing.T, row sdkRow, sc sdkScenario, s sdkSeen) {
	t.Log(s)
}
func checkSDKDocs(t *testing.T, seen map[[2]string]sdkSeen) {
	t.Helper()
}
