"""What the commands of lbctl share: options, output, sending."""
