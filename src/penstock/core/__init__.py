"""Pure decisions: values in, values out; no clock, no dice, no I/O."""
