"""The mock's side of Bedrock's Converse dialect."""
