module extender

go 1.21
