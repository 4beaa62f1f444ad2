"""OpenCL devices: `device` is the engine's side, `worker` the process that holds the driver."""
