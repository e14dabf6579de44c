"""What binding makes of policies: queries whose expressions are typed and whose columns are resolved."""
