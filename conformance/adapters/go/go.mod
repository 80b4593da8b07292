module weig-go

go 1.25

require golang.org/x/sys v0.39.0
