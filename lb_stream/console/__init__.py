"""`lbctl console`: the figures of `lb_stream.query` as pages that a browser shows, live. It computes nothing and changes nothing."""
