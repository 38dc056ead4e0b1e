"""What parties compute: clients, servers, their models in training, their releases and memory."""
