"""What all other packages use: errors, options, addresses, keys, secrets, logs. No I/O of ours."""
